# Claims a slot for a machine and starts its keeper. The lines before this one set: machine name launch pool node pause looks devices wanted ending keeper.
eval "$ending"
folder=$base/$name
if [ "${#folder}" -gt 60 ]; then
    echo "error: the path $folder has ${#folder} bytes, and sockets below it need it to have at most 60: give the host a shorter folder" >&2
    exit 1
fi
enter

# The same launch has the same machine.
look_up_machine "$machine"
if [ -n "$file" ] && held "$file"; then
    tell "$file"
    exit
fi

# What this user's machines left whose keeper was killed.
for file in "$claims"/slot-*."$me"; do
    if [ -s "$file" ] && ! held "$file"; then
        look_up "$file" folder
        left=$said
        look_up "$file" machine
        if end_machine "$said" "$left"; then
            : >"$file"
        fi
    fi
done

slot=0
free=
while [ "$slot" -lt "$slots" ]; do
    holder=
    for file in "$claims/slot-$slot".*; do
        if [ -s "$file" ]; then
            # One that could not be swept is not to be had either.
            if [ "$file" = "$claims/slot-$slot.$me" ] || held "$file"; then
                holder=$file
            fi
        fi
    done
    if [ -n "$holder" ]; then
        look_up "$holder" pool
        echo "skyward-taken $slot $said"
    elif [ -z "$free" ]; then
        free=$slot
    fi
    slot=$((slot + 1))
done
if [ -z "$free" ]; then
    exit 75
fi

given=
if [ "$wanted" -gt 0 ]; then
    taken=
    for file in "$claims"/slot-*; do
        if [ -s "$file" ] && held "$file"; then
            look_up "$file" devices
            taken=$taken,$said
        fi
    done
    left=$wanted
    for device in $devices; do
        case $taken, in
            *",$device,"*) ;;
            *)
                if [ "$left" -gt 0 ]; then
                    given=$given${given:+,}$device
                    left=$((left - 1))
                fi
                ;;
        esac
    done
    if [ "$left" -gt 0 ]; then
        echo "skyward-short $left"
        exit 75
    fi
fi

# The address at which the client reached this host is the one at which others do, too.
address=${SSH_CONNECTION:-}
address=${address#* * }
address=${address%% *}
file=$claims/slot-$free.$me
for_all "$file"
exec 9<"$file"
# Nobody holds it, but somebody may just look whether it is held.
flock -w 10 9
give_up() {
    rm -rf "$folder"
    : >"$file"
}
trap give_up EXIT

# Writes a file. A shell's own printf may not say why it cannot.
write() {
    printf '%s\n' "$2" >"$1" || printf '%s\n' "$2" | cat >"$1"
}

write "$file" "machine $machine
launch $launch
pool $pool
node $node
folder $folder
slot $free
devices $given
address ${address:-127.0.0.1}"
[ ! -e "$folder" ] || rm -rf "$folder"
mkdir "$folder"
: >"$folder/lease"
write "$folder/keeper" "$ending$keeper"
# It has nothing of this program but the claim.
setsid sh "$folder/keeper" "$folder" "$pause" "$looks" "$machine" </dev/null >/dev/null 2>&1 8<&- &
trap - EXIT
echo "keeper $!" >>"$file"
tell "$file"
