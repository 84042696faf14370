headwater finetune --from reviews --train all-reviews.csv --out reviews-2
