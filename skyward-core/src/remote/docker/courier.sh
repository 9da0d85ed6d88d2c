# Runs a command for a client at the other end of standard input. Arguments: a token; how many bytes of input the command gets; the command.
#
# On standard input come the command's variables, as lines of shell up to one that is the token, so that they are on no command line and in no record of the engine;
# then its input. The token and the exit status follow its output on both streams: a process that the command leaves behind may hold them for ever. When the client
# is gone before it has said with a line that it has seen the end, the command and its children are ended, which carry the token in their environment.
skyward_token=$1
skyward_length=$2
shift 2
skyward_variables=
while :; do
    IFS= read -r skyward_line || exit 1
    [ "$skyward_line" != "$skyward_token" ] || break
    skyward_variables="$skyward_variables$skyward_line
"
done

end() {
    looks=0
    clean=0
    while [ "$clean" -lt 2 ] && [ "$looks" -lt 200 ]; do
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

tell() {
    printf '\036%s %s\n' "$skyward_token" "$1"
}

{
    [ "$skyward_length" -eq 0 ] || head -c "$skyward_length" 2>/dev/null
    exec >/dev/null 2>&1
    read -r seen || end
} | {
    (
        unset skyward_token skyward_length skyward_line
        eval "$skyward_variables"
        unset skyward_variables
        exec "$@"
    )
    status=$?
    tell "$status"
    tell "$status" >&2
}
