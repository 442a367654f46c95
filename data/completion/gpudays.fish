# fish completion of gpudays. The program itself knows what can follow; see its source,
# cmd_completion.c. In config.fish: gpudays completion fish | source
function __gpudays_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -l lines ($before[1] completion words -- $before[2..-1] "$current" 2>/dev/null)
    for line in $lines[2..-1]
        echo $line
    end
    switch "$lines[1]"
        case 'files*'
            __fish_complete_path "$current"
        case 'folders*'
            __fish_complete_directories "$current"
    end
end
complete -c gpudays -f -a '(__gpudays_complete)'
