# Prints the machines of a pool. Earlier lines set: pool.
# A claim that is being made counts.
if [ -d "$claims" ]; then
    enter
    exec 8>&-
fi
for file in "$claims"/slot-* "$before"/slot-*; do
    is_record "$file" || continue
    look_up "$file" pool
    [ "$said" = "$pool" ] || continue
    look_up "$file" machine
    machine=$said
    folder_of "$machine"
    if ! held "$file" && [ ! -e "$folder" ]; then
        left=$(members "$machine") || fail "no process can be started to find the machine's processes"
        [ -n "$left" ] || continue
    fi
    tell "$file" "$folder"
done
