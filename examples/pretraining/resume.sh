headwater pretrain --out run --resume
