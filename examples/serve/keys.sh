python3 -c 'import secrets; print(secrets.token_urlsafe(32))' > keys.txt
headwater serve --model rivers=quickstart/run/model --host 0.0.0.0 --api-key-file keys.txt
