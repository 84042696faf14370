# As root: serve with the program /srv/headwater/$1 on port $2, then stop the server on port $3. The same line goes back.
set -eu
ln -sfn "$1" "/srv/headwater/$2"
systemctl enable --now "headwater@$2"
until curl -fsS "http://127.0.0.1:$2/health"; do sleep 1; done
echo "server 127.0.0.1:$2;" > /etc/nginx/headwater.servers
nginx -t
systemctl reload nginx
sleep 5 # until nginx's old workers have passed on what they have
systemctl disable --now "headwater@$3" # it finishes the requests that it has
