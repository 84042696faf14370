headwater serve --model reviews=reviews
