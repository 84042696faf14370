headwater serve --model runs/small/model
