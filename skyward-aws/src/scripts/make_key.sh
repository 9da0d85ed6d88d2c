# Makes a second host key, once, and prints its public half.
# The SSH server may listen a moment before the keeper has made the folder.
tries=0
until [ -O "$folder/lease" ] || [ "$tries" -ge 40 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
[ -O "$folder/lease" ] || {
    echo "its folder $folder is not there yet" >&2
    exit 75
}
# Instances of one launch have the same host key until each has made its own, so check that this is the right instance.
base=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}
base=${base%/}/latest
token=$(curl -sf -m 3 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$base/api/token" 2>/dev/null) || token=
told=$(curl -sf -m 3 -H "X-aws-ec2-metadata-token: $token" "$base/meta-data/instance-id" 2>/dev/null) ||
    told=$(cat /var/lib/cloud/data/instance-id 2>/dev/null) || told=
[ -z "$told" ] || [ "$told" = "$instance" ] || {
    echo "it is $told" >&2
    exit 76
}
as_root '
    umask 077
    key=/etc/ssh/skyward_host_key
    if [ ! -e "$key.pub" ]; then
        rm -f "$key.new" "$key.new.pub"
        ssh-keygen -q -t ed25519 -N "" -C "" -f "$key.new"
        mv "$key.new" "$key"
        mv "$key.new.pub" "$key.pub"
    fi
    cat "$key.pub"
'
