# Prints the state of machines, and the records of those that run. Earlier lines set: machines, each
# with the name of its folder after a slash.
set -f
set -- $machines
set +f
for one in "$@"; do
    machine=${one%/*}
    folder=$base/${one##*/}
    look_up_machine "$machine"
    # A machine whose keeper was killed lives for as long as its lease is renewed.
    if [ -n "$file" ] && { held "$file" || is_renewed "$file" "$folder"; }; then
        echo "skyward-state $machine running"
        tell "$file" "$folder"
        continue
    fi
    left=$(members "$machine") || fail "no process can be started to find the machine's processes"
    if [ -e "$folder" ] || [ -n "$left" ]; then
        echo "skyward-state $machine ending"
    else
        echo "skyward-state $machine gone"
    fi
done
