# Runs the shell text in the first line of standard input, which gets the rest of the input.
echo skyward-output;
newline=${IFS#??};
IFS= read -r text && eval "$text"
