"""What brings models here from other places, and packages to them.

    access        how much of the network a command may use, and who hears what is fetched
    pull          what a room that fetches packages gives, and what they are called
    upstream      where files came from, as a package remembers it
    local         a model's files on this machine
    find          a bare name or an address -> those files; `hollow`: of their weights the headers alone
    hub/          models of the Hugging Face hub
    other_programs, plain_files  what other programs have: single files, and whole models
    ollama_store  models that Ollama has on this machine
    ollama        what is in a package of Ollama's, from its registry or its store on a disk
    registry      packages in registries
    trust         what is said of a server whose certificate is not trusted

`modelkit.address` says what a text means. Nothing is fetched for a text without a host, nor where `Access`
says offline. Everything that comes is checked against what was promised before it has a name.
"""
