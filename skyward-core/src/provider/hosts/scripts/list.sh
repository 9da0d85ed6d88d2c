# Tells the machines of a pool that are there. The lines before this one set: pool.
for file in "$claims"/slot-*; do
    is_record "$file" || continue
    look_up "$file" pool
    [ "$said" = "$pool" ] || continue
    look_up "$file" machine
    machine=$said
    folder_of "$machine"
    if ! held "$file" && [ ! -e "$folder" ]; then
        left=$(members "$machine") || fail "no process can be started to look for those of the machine"
        [ -n "$left" ] || continue
    fi
    tell "$file" "$folder"
done
