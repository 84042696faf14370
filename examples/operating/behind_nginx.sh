headwater serve --model small=models/small --allow-host models.example.org --proxy 127.0.0.1 --log
