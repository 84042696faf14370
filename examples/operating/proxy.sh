# As root, in a folder with the files of this page; the certificate and its key are in /etc/nginx.
set -eu
echo 'server 127.0.0.1:8000;' > /etc/nginx/headwater.servers
cp nginx.conf /etc/nginx/conf.d/headwater.conf
nginx -t
systemctl reload nginx
