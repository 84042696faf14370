headwater serve --model small=models/small --allow-host models.example.org --log
