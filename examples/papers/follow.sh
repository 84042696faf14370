headwater pretrain gpt1-nano --tokens tokens --out followed \
    --evaluate dprd.substitution --evaluate-every 200 --data "$HEADWATER_DATA"
headwater report followed --out followed.html
