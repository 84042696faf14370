headwater serve --model base=runs/small/model --model classes=fine-tuned --host 0.0.0.0 --api-key-file keys.txt
