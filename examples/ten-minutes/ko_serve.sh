headwater serve --model 후기=분류기
