# In /srv/headwater: serve releases/$1 from now on; $2 is the process of the server. The same line goes back.
set -eu
ln -s "../releases/$1" models/small.next
mv -T models/small.next models/small # a link is replaced at once
kill -HUP "$2"
