curl -s -w '\n' http://127.0.0.1:8000/v1/models
curl -s -w '\n' http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \
    -d '{"model": "rivers", "prompt": "Return the", "max_tokens": 20, "temperature": 0.8, "seed": 1}'
curl -s -w '\n' http://127.0.0.1:8000/classify -H 'Content-Type: application/json' \
    -d '{"model": "packages", "input": ["Return a new array of given shape."], "explain": true}'
