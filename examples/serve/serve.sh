headwater serve --model rivers=quickstart/run/model --model packages=quickstart/fine-tuned/source
