# Ends a machine and gives its slot back. The lines before this one set: machine name.
# No claim is half made from here on.
enter
exec 8>&-
look_up_machine "$machine"

# Looks up the number of this machine's keeper: `said`, which is empty where the record has none.
look_up_keeper() {
    look_up "$file" keeper
    case $said in
        0* | 1 | *[!0-9]*) said= ;;
    esac
}

# Whether a process of this user's has the command line of this machine's keeper. The shells that a
# keeper forks have it too. A number that became another process's does not count.
keeps() {
    [ -O "/proc/$1" ] || return 1
    # Older keepers have fewer arguments, and a part of their script is before them here.
    words=$(tr '\0' '\n' 2>/dev/null <"/proc/$1/cmdline" | tail -n 10)
    case $words in
        *"keeper
$base/$name
"*"
$machine
$file"*) ;;
        *) return 1 ;;
    esac
}

# Kills the keeper and all of its process group. The keeper may be gone, and a shell of its own be left
# that holds the claim: the group counts when any process in it keeps this machine, because the number of
# a group is given to no other process or group while one is in it.
kill_keeper() {
    look_up_keeper
    [ -n "$said" ] || return 0
    for id in "$said" $(cd /proc && grep -slE "^[0-9]+ \(.*\) [A-Za-z] [0-9]+ $said " [0-9]*/stat); do
        if keeps "${id%/stat}"; then
            kill -s KILL -- "-$said" 2>/dev/null || :
            return 0
        fi
    done
}

# Only while somebody holds the claim there is a keeper.
if [ -n "$file" ] && held "$file"; then
    look_up_keeper
    if [ -n "$said" ] && keeps "$said"; then
        kill -s TERM "$said" 2>/dev/null || :
    fi
    # It ends the machine, and two that do so are slower than one.
    released "$file" 1 || :
fi
end_machine "$machine" "$base/$name"
[ -n "$file" ] || exit 0

# Whether the record is this machine's still.
is_its_own() {
    look_up "$file" machine
    [ "$said" = "$machine" ]
}

if held "$file" && is_its_own; then
    # One that is stopped hears nothing, and has nothing left to do. Its own shells are of its group: one of them that is stopped holds the claim without it.
    kill_keeper
    if ! released "$file" 10 && is_its_own; then
        look_up "$file" keeper
        fail "the keeper of the machine does not end: process $said"
    fi
fi
enter
if is_its_own && ! held "$file"; then
    : >"$file"
    slot=${file##*/slot-}
    for old in "$room/skyward-slot-$slot.$me" "$room/skyward-slot-$slot.$me".*; do
        if [ -n "$room" ] && [ -O "$old" ]; then
            rmdir "$old" 2>/dev/null || :
        fi
    done
fi
