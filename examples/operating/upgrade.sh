# The new model's folder, and the process of the server; models/small is a link to the folder that is served.
new=$1 server=$2
ln -s "$(realpath "$new")" models/small.next
mv -T models/small.next models/small # a link is replaced at once
kill -HUP "$server"
