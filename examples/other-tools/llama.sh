llama-server --model model.gguf --ctx-size 256 --port 8080 &
curl -s --retry 30 --retry-all-errors --retry-delay 1 http://127.0.0.1:8080/completion \
    -d '{"prompt": "The river", "n_predict": 20}'
kill $!
