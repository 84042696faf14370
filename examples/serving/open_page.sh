python3 -m http.server 5173 --bind 127.0.0.1 --directory examples/serving
