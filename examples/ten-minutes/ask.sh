curl -s -w '\n' http://127.0.0.1:8000/classify -H 'Content-Type: application/json' \
    -d '{"model": "reviews", "input": ["It broke after a day."], "explain": true}'
