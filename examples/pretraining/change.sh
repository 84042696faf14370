headwater pretrain watched --set steps=3000                     # train longer
headwater pretrain --from watched@3000 --tokens tokens --out branch --set learning_rate=1e-4 --set steps=500
