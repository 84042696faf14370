# In /srv/headwater: a model's folder, under a name that says which one it is, and the link that is served.
set -eu
cp -r "$1" "releases/$2"
ln -s "../releases/$2" models/small
