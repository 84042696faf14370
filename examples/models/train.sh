headwater pretrain gpt2-mini --tokens tokens --out leg-1 --seed 1 \
    --set steps=1000 --set learning_rate=3e-3 --set schedule=constant
headwater pretrain gpt2-mini --tokens tokens --from leg-1/model --out leg-2 --seed 2 \
    --set steps=1000 --set learning_rate=3e-3 --set schedule=constant --set warmup_steps=50
headwater pretrain gpt2-mini --tokens tokens --from leg-2/model --out last --seed 3 \
    --set steps=1000 --set learning_rate=3e-3 --set schedule=linear --set warmup_steps=20
