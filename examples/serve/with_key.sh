curl -s -w '\n' http://127.0.0.1:8000/v1/models -H "Authorization: Bearer $(head -1 keys.txt)"
