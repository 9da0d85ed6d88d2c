# Runs a command for a client at the other end of standard input. Arguments: a token; the length of
# the command's input in bytes; what to do when the client disappears; the command.
#
# Standard input first has the command's variables, as lines of shell up to a line that is the
# token, so that they are on no command line and in no record of a service. The command's input
# follows. After the command's output, both streams get the token and the exit status, because a
# process that the command left behind may hold them for ever. When the client disappears before it
# has confirmed the end with a line, `kill` kills the command and its children, which have the token
# in their environment, and `end` only ends the command's input.
#
# While the command leaves more of its input unread than a pipe holds, nobody here can see that the
# client has gone. The client then runs this script without a command, which kills them. The command
# may be about to start, so that looks longer.
skyward_token=$1
skyward_length=$2
skyward_at_end=$3
shift 3

end() {
    looks=0
    clean=0
    while [ "$clean" -lt "$1" ] && [ "$looks" -lt 200 ]; do
        looks=$((looks + 1))
        found=$(grep -slzxF -e "SKYWARD_RUN=$skyward_token" /proc/[0-9]*/environ)
        if [ -z "$found" ]; then
            clean=$((clean + 1))
        else
            clean=0
        fi
        for process in $found; do
            process=${process#/proc/}
            kill -9 "${process%/environ}" 2>/dev/null
        done
        sleep 0.02 2>/dev/null || sleep 1
    done
}

if [ $# -eq 0 ]; then
    end 50
    exit
fi

skyward_variables=
while :; do
    IFS= read -r skyward_line || exit 1
    [ "$skyward_line" != "$skyward_token" ] || break
    skyward_variables="$skyward_variables$skyward_line
"
done

tell() {
    printf '\036%s %s\n' "$skyward_token" "$1"
}

{
    [ "$skyward_length" -eq 0 ] || head -c "$skyward_length" 2>/dev/null
    exec >/dev/null 2>&1
    read -r seen || [ "$skyward_at_end" = end ] || end 2
} | {
    (
        unset skyward_token skyward_length skyward_at_end skyward_line
        eval "$skyward_variables"
        unset skyward_variables
        exec "$@"
    )
    status=$?
    tell "$status"
    tell "$status" >&2
}
