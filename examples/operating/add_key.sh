# In /srv/headwater: a new key for somebody, with a name that says whose it is and since when.
umask 027
key=$(python3 -c 'import secrets; print(secrets.token_urlsafe(32))')
echo "$1 $key" >> keys.txt
echo "$key"
