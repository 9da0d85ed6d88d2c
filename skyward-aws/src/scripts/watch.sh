# Prints notices of the end of this instance, from its metadata service, as `KIND SECONDS WORDS`. $1 is `yes` where a rebalance recommendation counts as one.
#
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
base=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}
base=${base%/}
token=
# Prints what is there; fails where nothing is.
look() {
    curl -sf -m 3 -H "X-aws-ec2-metadata-token: $token" "$base/latest/meta-data/$1"
}
# The value of the field $1 of a JSON object in one line.
field() {
    sed -n "s/.*\"$1\"[[:space:]]*:[[:space:]]*\"\([^\"]*\)\".*/\1/p"
}
# The seconds until the time $1, none of them below 0.
until_time() {
    at=$(date -d "$1" +%s 2>/dev/null) || at=$(($(date +%s) + 120))
    left=$((at - $(date +%s)))
    [ "$left" -ge 0 ] || left=0
    echo "$left"
}
while :; do
    # A token is good for hours; one that is not any more is made anew.
    if [ -z "$token" ] || ! look instance-id >/dev/null; then
        token=$(curl -sf -m 3 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 21600' "$base/latest/api/token") || token=
    fi
    if action=$(look spot/instance-action); then
        echo "preempted $(until_time "$(echo "$action" | field time)") EC2 takes the instance back: $(echo "$action" | field action)"
    elif [ "$1" = yes ] && advice=$(look events/recommendations/rebalance); then
        echo "preempted 600 EC2 recommends to move away since $(echo "$advice" | field noticeTime): the instance is likely to be interrupted"
    elif event=$(look events/maintenance/scheduled) && [ -n "$(echo "$event" | tr -d '\n' | field NotBefore)" ]; then
        event=$(echo "$event" | tr -d '\n')
        case $(echo "$event" | field Code) in
            instance-stop | instance-retirement | system-reboot | instance-reboot)
                echo "expired $(until_time "$(echo "$event" | field NotBefore)") EC2 has scheduled $(echo "$event" | field Code)"
                ;;
        esac
    fi
    sleep 5
done
