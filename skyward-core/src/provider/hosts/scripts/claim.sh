# Claims a slot for a machine and starts its keeper. Earlier lines set: machine name launch pool
# node keeping lasts lease period owner devices wanted ending keeper.
eval "$ending"
if [ "$((${#base} + 11))" -gt 60 ]; then
    fail "the path $base/$name has $((${#base} + 11)) bytes, but sockets below it allow at most 60: give the host a shorter folder"
fi
enter
flock -s -n 7 7<"$claims/all" && fail "the file system of $base ($(stat -f -c %T "$base")) has no working locks, which claims need: give the host a folder on a local disk"

# The same launch has the same machine.
look_up_machine "$machine"
if [ -n "$file" ] && held "$file"; then
    tell "$file" "$base/$name"
    exit
fi

# Ends what is left of this user's machines whose keeper was killed. One whose lease is still
# renewed lives, and keeps its slot.
for file in "$claims"/slot-* "$before"/slot-*; do
    if is_record "$file" && ! held "$file"; then
        look_up "$file" machine
        left=$said
        folder_of "$left"
        if ! is_renewed "$file" "$folder" && end_machine "$left" "$folder"; then
            : >"$file"
        fi
    fi
done

# Removes what earlier boots of this host have left. Clones of it may share its id and this folder,
# but not its name as well; what may be a clone's stays.
origin="$machine_id $node_name"
for left in "$base"/claims/*/origin; do
    left=${left%/origin}
    case ${left##*/} in "$boot".*) continue ;; esac
    [ -n "$boot" ] && [ -n "$machine_id" ] || continue
    { read -r said <"$left/origin"; } 2>/dev/null || continue
    [ "$said" = "$origin" ] || continue
    for file in "$left"/slot-*; do
        if is_record "$file"; then
            ! held "$file" || continue 2
            look_up "$file" machine
            folder_of "$said"
            rm -rf "$folder"
        fi
    done
    rm -rf "$left"
done
[ -e "$claims/origin" ] || echo "$origin" >"$claims/origin"
folder=$base/$name

enter_room
look_elsewhere
slot=0
free=
while [ "$slot" -lt "$slots" ]; do
    look_up_user "$slot"
    look_up_slot "$slot"
    # A slot that could not be cleaned up is not free.
    if is_record "$file"; then
        look_up "$file" machine
        holder=$said
        look_up "$file" pool
        echo "skyward-taken $slot $said $holder"
    elif [ -n "$user" ]; then
        echo "skyward-taken $slot user $user"
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
    while read -r slot has user; do
        taken=$taken,${has##*.}
    done <<EOF
$elsewhere
EOF
    for file in "$claims"/slot-* "$before"/slot-*; do
        if is_record "$file"; then
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

# Other nodes reach this host at the address at which the client reached it.
address=${SSH_CONNECTION:-}
address=${address#* * }
address=${address%% *}
file=$claims/slot-$free
if [ -L "$file" ] || { [ -e "$file" ] && [ ! -f "$file" ]; }; then
    fail "$file is not a file"
fi
exec 9>>"$file"
# Nobody holds the claim, but somebody may be checking whether it is held.
flock -w 10 9 || fail "the claim of slot $free remains locked: $file"

# Takes the slot among the users of this host.
share=
if [ -n "$room" ]; then
    for old in "$room/skyward-slot-$free.$me" "$room/skyward-slot-$free.$me".*; do
        # Nobody else can create one of this name for this user, or remove it.
        [ ! -O "$old" ] || rmdir "$old" 2>/dev/null || :
    done
    share=$room/skyward-slot-$free.$me${given:+.$given}
    umask 022
    mkdir "$share" 2>/dev/null || fail "slot $free cannot be claimed among the users of this host: $(stat -c '%n belongs to the user %U' "$share" 2>/dev/null || echo "$share cannot be created")"
    umask 077
    exec 6<"$share/."
    # Somebody may be checking whether it is held.
    flock -w 2 6 || fail "slot $free cannot be claimed among the users of this host: another user holds $share"
fi
give_up() {
    rm -rf "$folder"
    [ -z "$share" ] || rmdir "$share" 2>/dev/null || :
    : >"$file"
}
trap give_up EXIT

# Its beginning and its end, on the clock that begins with the boot.
look_up_uptime
ends=
if [ "$lasts" -gt 0 ]; then
    ends=${uptime:+$((uptime + lasts))}
fi

# Writes a file. A shell's own printf may not report why it cannot.
write() {
    printf '%s\n' "$2" >"$1" || printf '%s\n' "$2" | cat >"$1"
}

write "$file" "machine $machine
launch $launch
pool $pool
node $node
slot $free
devices $given
address ${address:-127.0.0.1}
born ${uptime:-0}
period $period
lease $lease
owner $owner
ends $ends"
[ ! -e "$folder" ] || rm -rf "$folder"
mkdir "$folder"
# A secret of the machine's processes.
write "$folder/key" "$(head -c 32 /dev/urandom | sha256sum | cut -c 1-32)"
# Nobody has renewed the lease yet: the beginning of all time, because a later one is the uptime of
# a host that is up for longer.
TZ=UTC0 touch -m -t 197001010000 "$folder/lease"
# A cleaner that removes files by age skips a locked folder with everything in it.
exec 4<"$base/."
flock -s -n 4 || :
# The keeper inherits nothing of this script but the claim, and runs none of bash's startup files.
shell=sh
! command -v bash >/dev/null || shell='bash --norc --posix -p'
setsid $shell -c "$keeper" keeper "$folder" $keeping "$machine" "$file" "$share" </dev/null >/dev/null 2>&1 8<&- 5<&- &
trap - EXIT
echo "keeper $!" >>"$file"
tell "$file" "$folder"
