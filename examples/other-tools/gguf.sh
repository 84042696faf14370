headwater convert quickstart/run/model model.gguf   # f16; --precision q8_0 halves it
