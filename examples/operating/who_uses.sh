# Requests since the start of the server, by the name of their key.
curl -fsS "http://127.0.0.1:8000/metrics" -H "Authorization: Bearer $KEY" | grep '^headwater_key_requests_total'
