# As root, in a folder with the files of this page.
set -eu
cp headwater.service /etc/systemd/system/headwater@.service
ln -sfn 1.0 /srv/headwater/8000 # the program of port 8000
chgrp headwater /srv/headwater/keys.txt
systemctl daemon-reload
systemctl enable --now headwater@8000
until curl -fsS http://127.0.0.1:8000/health; do sleep 1; done
