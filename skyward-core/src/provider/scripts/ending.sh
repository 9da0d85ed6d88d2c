# The processes of a machine have its mark, the variable SKYWARD_MACHINE, in their environment. A
# process that clears it still has a parent.

# The ids of the processes of machine $1 that this user may see, without zombies. Fails where no
# process can be started.
members() (
    cd /proc
    marked=$(grep -slzxF -e "SKYWARD_MACHINE=$1" [0-9]*/environ || [ "$?" -le 2 ]) || exit 1
    [ -n "$marked" ] || exit 0
    { echo "$marked"; grep -sE -e '^(State|PPid):' [0-9]*/status || :; echo whole; } | awk -F '[/: \t]+' '
        $1 == "whole" { whole = 1 }
        $2 == "environ" { member[$1] }
        $3 == "PPid" { parent[$1] = $4 }
        $3 == "State" && $4 ~ /^[ZX]/ { ended[$1] }
        END {
            if (!whole)
                exit 1
            do {
                more = 0
                for (id in parent)
                    if (!(id in member) && parent[id] in member) {
                        member[id]
                        more = 1
                    }
            } while (more)
            for (id in member)
                if (id in parent && !(id in ended))
                    print id
        }'
)

# Ends them, and returns when $2 checks find none. Two are certain: a process that is just replacing
# its program has no environment for a moment. Fails when some are left after many checks.
end_members() (
    clean=0
    looks=0
    while [ "$clean" -lt "$2" ]; do
        left=$(members "$1") || exit 1
        if [ -z "$left" ]; then
            clean=$((clean + 1))
            continue
        fi
        clean=0
        kill -9 $left 2>/dev/null || :
        looks=$((looks + 1))
        if [ "$looks" -ge 300 ]; then
            echo "processes that do not end:" $left >&2
            exit 1
        fi
        sleep 0.02 2>/dev/null || sleep 1
    done
)

# Ends machine $1 and removes its folder $2.
end_machine() {
    end_members "$1" 1 || return 1
    # A payload may have removed the permissions that rm needs.
    rm -rf "$2" 2>/dev/null || {
        find "$2" -type d -exec chmod u+rwx {} \; 2>/dev/null || :
        rm -rf "$2" || return 1
    }
    # Ends what was started just before the removal; nothing can be started in a removed folder.
    end_members "$1" 2
}
