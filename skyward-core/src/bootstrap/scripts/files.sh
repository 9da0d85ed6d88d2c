# Unpacks the image's files into the working folder, and removes their archive. The line before this one sets: folder.
mkdir -p "$folder/work"
tar -x -p -o -f "$folder/files.tar" -C "$folder/work"
rm -f "$folder/files.tar"
