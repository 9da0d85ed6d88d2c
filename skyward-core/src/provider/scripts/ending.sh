# The processes of a machine have its mark, the variable SKYWARD_MACHINE, in their environment. Every
# user can give a process any environment, so the mark counts only in processes whose real user is
# this one. The file `key` in the machine's folder has a secret that its processes have in the
# variable SKYWARD_MACHINE_KEY: it shows root which processes of other users they have started. A
# process that clears its environment still has a parent, a session and a process group.

# The ids of the processes of the machine with mark $1 and key $2 that this user may see, without
# zombies. Then `replacing` if a process replaces its program: it has memory, and neither arguments nor
# an environment. Otherwise `unclear` if a process has ended meanwhile. Fails unless all of the list was
# read.
look() (
    cd /proc
    {
        echo [0-9]*
        # The key must not be in an argument, which everybody can read.
        printf '%s\n' "SKYWARD_MACHINE=$1" ${2:+"SKYWARD_MACHINE_KEY=$2"} | {
            # Processes that end meanwhile cause status 2.
            grep -asozxF -f - [0-9]*/environ || [ "$?" -le 2 ] && printf 'read\0'
        } | tr '\0' '\n'
        # First the environment: when a program has been replaced, the arguments are there before it.
        grep -sL '' [0-9]*/environ || :
        grep -sL '' [0-9]*/cmdline || :
        grep -sE -e '^(State|PPid|Uid|VmSize|NSpgid|NSsid):' self/status [0-9]*/status || [ "$?" -le 2 ] && echo read
    } | awk -F '[/: \t]+' '
        NR == 1 { listed = split($0, ids, " ") }
        $1 == "read" { parts++ }
        $2 == "environ" && $3 ~ /^SKYWARD_MACHINE_KEY=/ { keyed[$1] }
        $2 == "environ" && $3 ~ /^SKYWARD_MACHINE=/ { marked[$1] }
        $2 == "environ" && NF == 2 { bare[$1] }
        $2 == "cmdline" { replacing[$1] }
        $3 == "VmSize" { memory[$1] }
        $3 == "State" { state[$1] = $4 }
        $3 == "Uid" { user[$1] = $4 }
        $3 == "PPid" || $3 == "NSpgid" || $3 == "NSsid" { below[$4] = below[$4] " " $1 }
        END {
            if (parts < 2 || !("self" in user))
                exit 1
            for (id in user)
                if (id in keyed || (id in marked && user[id] == user["self"])) {
                    member[id]
                    queue[++count] = id
                }
            for (at = 1; at <= count; at++) {
                size = split(below[queue[at]], found, " ")
                for (i = 1; i <= size; i++)
                    if (found[i] != "self" && !(found[i] in member)) {
                        member[found[i]]
                        queue[++count] = found[i]
                    }
            }
            for (id in member)
                if (id > 1 && state[id] !~ /^[ZX]/)
                    print id
            for (i = 1; i <= listed; i++)
                if (state[ids[i]] ~ /^[ZX]?$/)
                    unclear = 1
            for (id in replacing)
                if (id in bare && id in memory && state[id] !~ /^[ZX]/)
                    replaced = 1
            if (replaced)
                print "replacing"
            else if (unclear)
                print "unclear"
        }'
)

# Kills processes with mark $1 as soon as they are started, for a moment, and fails if there was one.
# No look finds a process that only starts the next one and ends. The chase reads the one that was
# started last, and stops it while it forks. It is over soon if there is none, because the processes
# of a busy host, ends of other machines among them, are read one by one. It takes longer while the
# host starts a process for every other look: then a look more often comes too late.
#
# dash and busybox read byte by byte. There, a process that lives for less than a millisecond ends
# before more than about a kilobyte of its environment was read. None is stopped before: it may be a
# stranger's, for whose stop somebody waits.
chase() {
    chased=0
    missed=0
    hit=0
    oldest=
    while [ "$chased" -lt 1000 ]; do
        [ "$missed" -lt 15 ] || { [ "$missed" -lt 200 ] && [ "$((youngest - oldest))" -ge "$((chased / 2))" ]; } || break
        chased=$((chased + 1))
        missed=$((missed + 1))
        read -r load load load load youngest 2>/dev/null </proc/loadavg || return "$hit"
        oldest=${oldest:-$youngest}
        # First whose it is: what another user has in its environment may take long to read.
        # The number may also be that of a thread.
        key='' real='' variables=''
        while read -r key real others; do
            case $key$real in
                "Tgid:$youngest") ;;
                Tgid:* | Uid:*) break ;;
            esac
        done 2>/dev/null </proc/"$youngest"/status
        [ "$key $real" = "$own" ] || continue
        { read -r variables </proc/"$youngest"/environ; } 2>/dev/null || :
        # Without the bytes between its variables, so another variable or a longer mark may look the
        # same. What decides takes a process, and meanwhile this one must not go on.
        case $variables in
            *"SKYWARD_MACHINE=$1"*) kill -s STOP "$youngest" 2>/dev/null || continue ;;
            *) continue ;;
        esac
        if grep -qszxF -e "SKYWARD_MACHINE=$1" /proc/"$youngest"/environ; then
            missed=0
            hit=1
            kill -s KILL "$youngest" 2>/dev/null || :
        else
            kill -s CONT "$youngest" 2>/dev/null || :
        fi
    done
    return "$hit"
}

# The ids of the processes of machine $1, as above.
members() (
    found=$(look "$1" '') || exit 1
    for id in $found; do
        case $id in
            *[a-z]) ;;
            *) echo "$id" ;;
        esac
    done
)

# Sends a signal to processes, and to the groups that they lead: all of a group get it at once, so
# that none can fork meanwhile.
send() (
    signal=$1
    shift
    groups=
    for id in "$@"; do
        groups="$groups -$id"
    done
    kill -s "$signal" -- $groups "$@" 2>/dev/null || :
)

# Ends the processes of machine $1 with key $2, and returns when two looks in a row find none. Fails
# when some are left after many looks.
#
# The first look stops them, so that they start no others and still take their places within limits.
# What later looks find was started meanwhile, and is killed at once: a process that is killed while
# it forks has no child. The stopped ones are killed when a look finds nothing else.
end_members() (
    stopped=
    clean=0
    looks=0
    while read -r key real others; do
        [ "$key" != Uid: ] || break
    done </proc/self/status
    own="$key $real"
    while :; do
        found=$(look "$1" "$2") || exit 1
        left=${found%%[a-z]*}
        if [ -z "$left" ]; then
            looks=$((looks + 1))
            if [ "$found" = replacing ] && [ "$looks" -lt 300 ]; then
                clean=0
                continue
            fi
            clean=$((clean + 1))
            if [ "$clean" = 1 ] && [ -n "$found" ] && [ "$looks" -lt 300 ]; then
                chase "$1" || clean=0
            fi
            [ "$clean" -lt 2 ] || exit 0
            continue
        fi
        clean=0
        looks=$((looks + 1))
        if [ "$looks" = 1 ]; then
            send STOP $left
            stopped=$left
            continue
        fi
        new=$(echo "$left" | grep -vxF -e "$stopped") || :
        if [ -n "$new" ] && [ "$looks" -lt 300 ]; then
            send KILL $new
            continue
        fi
        send KILL $left
        if [ "$looks" -ge 300 ]; then
            set -- $left
            echo "$# processes do not end: $(echo "$@" | cut -d ' ' -f 1-20)" >&2
            exit 1
        fi
        sleep 0.02 2>/dev/null || sleep 1
    done
)

# Ends machine $1 and removes its folder $2.
end_machine() {
    key=
    { read -r key <"$2/key"; } 2>/dev/null || :
    end_members "$1" "$key" || return 1
    # A payload may have removed the permissions that rm needs.
    rm -rf "$2" 2>/dev/null || {
        find "$2" -type d -exec chmod u+rwx {} \; 2>/dev/null || :
        rm -rf "$2" || return 1
    }
    # Ends what was started just before the removal; nothing can be started in a removed folder.
    end_members "$1" "$key"
}
