# Ends a machine and frees its slot. Earlier lines set: machine name.
# From here on no claim is half made.
enter
exec 8>&-
look_up_machine "$machine"

# Looks up the number of this machine's keeper: `said`, empty where the record has none.
look_up_keeper() {
    look_up "$file" keeper
    case $said in
        0* | 1 | *[!0-9]*) said= ;;
    esac
}

# Whether a process of this user has the command line of this machine's keeper. The shells that a
# keeper forks have it too. A number that another process has got meanwhile does not count.
keeps() {
    [ -O "/proc/$1" ] || return 1
    # Keepers of older versions have fewer arguments, and a part of their script precedes them here.
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

# Kills the keeper and its whole process group. When the keeper is gone, a shell of its own may
# still hold the claim: the group counts when any process in it keeps this machine, because the
# number of a group is given to no other process or group while it has a member.
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

# There is a keeper only while somebody holds the claim.
if [ -n "$file" ] && held "$file"; then
    look_up_keeper
    if [ -n "$said" ] && keeps "$said"; then
        kill -s TERM "$said" 2>/dev/null || :
    fi
    # The keeper ends the machine itself; two that end it are slower than one.
    released "$file" 1 || :
fi
end_machine "$machine" "$base/$name"
[ -n "$file" ] || exit 0

# Whether the record is still this machine's.
is_its_own() {
    look_up "$file" machine
    [ "$said" = "$machine" ]
}

if held "$file" && is_its_own; then
    # A stopped keeper gets no signal, and has nothing left to do. Its own shells are in its group:
    # a stopped one of them holds the claim without it.
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
