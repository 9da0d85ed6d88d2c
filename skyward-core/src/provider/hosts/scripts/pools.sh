# Prints the pools of which this user has something here: for each claim the pool, its owner, the
# lease in milliseconds, and the age: empty where its machine lives, otherwise how many seconds ago
# it did.
for file in "$claims"/slot-* "$before"/slot-*; do
    is_record "$file" || continue
    look_up "$file" machine
    machine=$said
    folder_of "$machine"
    age=
    if ! held "$file" && ! is_renewed "$file" "$folder"; then
        if [ ! -e "$folder" ]; then
            found=$(members "$machine") || fail "no process can be started to look for those of the machine"
            [ -n "$found" ] || continue
        fi
        # Its last renewal, or else its beginning. A machine of an earlier boot died before this one.
        look_up_renewal "$folder"
        look_up "$file" born
        age=$(((${uptime:-0} - ${renewal:-${said:-0}}) / 100))
        [ "$age" -ge 0 ] || age=0
    fi
    for name in pool owner lease; do
        look_up "$file" "$name"
        printf 'skyward-%s %s\n' "$name" "$said"
    done
    printf 'skyward-age %s\nskyward-end\n' "$age"
done
