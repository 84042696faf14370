curl -s http://127.0.0.1:8000/classify -H 'Content-Type: application/json' \
    -d '{"model": "후기", "input": ["하루 만에 고장 났어요."], "explain": true}' | python3 -m json.tool --no-ensure-ascii
