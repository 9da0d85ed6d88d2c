# Tells the state of machines. The lines before this one set: machines, each with the name of its folder after a slash.
set -f
set -- $machines
set +f
for one in "$@"; do
    machine=${one%/*}
    look_up_machine "$machine"
    if [ -n "$file" ] && held "$file"; then
        echo "skyward-state $machine running"
    elif [ -e "$base/${one##*/}" ] || [ -n "$(members "$machine")" ]; then
        echo "skyward-state $machine ending"
    else
        echo "skyward-state $machine gone"
    fi
done
