headwater serve --model runs/small/model --allow-origin http://localhost:5173
