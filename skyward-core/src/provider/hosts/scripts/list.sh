# Tells the machines of a pool that are there. The lines before this one set: pool.
for file in "$claims"/slot-*."$me"; do
    [ -s "$file" ] || continue
    look_up "$file" pool
    [ "$said" = "$pool" ] || continue
    look_up "$file" folder
    if held "$file" || [ -e "$said" ] || { look_up "$file" machine && [ -n "$(members "$said")" ]; }; then
        tell "$file"
    fi
done
