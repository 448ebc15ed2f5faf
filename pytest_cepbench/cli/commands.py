"""The commands of `cepbench` with their options: one table, from which help and parser are made.

A command begins with its words and what it is about. Below it stands one option an entry: its head,
two spaces or more, and its text, which may go on in the lines below, further indented. A head is a
name, what stands for its value, which says of which type values are (`TYPES` in `arguments`), or
the values themselves in braces, and marks: `?`, `*`, `+`, `several`, `required`, or `= DEFAULT`.
`@NAME ...` inserts entries of `SHARED`. Strings only, since mistakes are answered without imports.
"""

SHARED = """
    results REPORT  what pytest --cep-report wrote
    suite SUITE     folder with a suite.toml, or such a file
    --case [SUITE/]PART/METRIC several
        these cases only, with the wildcards *, ? and [...] (several allowed); default: all
    --baselines DIR = baselines  folder of accepted baselines
    --store DIR = .cepbench/store
    --delete        delete what is listed
    --dry-run       write no baseline
    --describer SPEC  the describer, the same for all
    --generator SPEC  the generator, the same for all
    --encoder [NAME=]SPEC several
        model whose vectors are compared; with NAME= one of the suite's further encoders
    --detector SPEC  the detector, the same for all
    --vqa SPEC      the VQA model, the same for all
    --role {describer,generator,encoder,detector,vqa,unified}
        what the models under test play
    --data NAME=PATH several  where a data set lies
    --samples N     most samples of each category
    --judge SPEC    the judge; default: the suite's own
    ratings RATINGS  a ratings folder
    folder FOLDER   of dataset patterns
    --port PORT = 8766  0: any free one
    --host ADDRESS = 127.0.0.1  address to listen on; the default is this machine alone
    --name HOST several  name by which browsers may call the server (several allowed)
    --only-write    write the folder, and start no server
"""

COMMANDS = """
init: write a suite for your own images and its test, with measured tolerances
    --images IMAGES required  sub-folders are categories
    --model SPEC required  the model that will be gated
    --describer SPEC       the describer of the suite, the same for all models
    --generator SPEC       the generator of the suite, the same for all models
    --encoder SPEC         the encoder of the suite, the same for all models
    --role {describer,generator,encoder,unified}
        what the model under test plays
    --name NAME            of the suite; default: that of the folder of images
    --samples N = 8        most images of each category that the noise is measured on
    --seeds N = 3          under how many seeds
    --no-measure           ask no model, and write the default tolerance
    --accept   measure the model on the whole suite, and accept its numbers as baselines
    @store
suites: list the suites that come with the package, and what each of them needs
    name NAME ?  show this suite in full
doctor: check whether a suite as it is set up can see anything, without gating
    @suite
    --model SPEC
        the model that would be gated; default: the suite's describer, or the one that was accepted
    @describer generator encoder detector vqa role data samples
    --seeds N = 2  how many seeds, from the suite's own on
    @store baselines
    --out DIR = .cepbench/studies
calibrate: measure the noise of a model against itself over seeds, and keep it with the baselines
    @suite
    --model SPEC required  the model that is measured against itself
    @describer generator encoder detector vqa role data samples
    --seeds N = 5          how many seeds, from the suite's own on
    @store baselines dry-run
accept: accept the results of a run as baselines
    @results
    --reason TEXT required  why, in a sentence; kept in each baseline
    @case baselines
    --move-anchor
        make what is accepted the anchor too: the steps until here are forgotten
    --accept-insensitive
        accept also what lies at the floor by chance, where a regression could not be seen
    @dry-run store
prune: find baselines that no case has any more, and delete them
    @results delete baselines
compare: compare and rank two or more runs, case by case over the same samples
    runs [NAME=]REPORT +
        JSON reports (--cep-report) of two or more runs, the first one being compared with
    --out DIR  write the ranks there, as JSON
    --suite NAME several  cases of this suite only (several allowed)
    @case
    --alpha X = 0.05  error of all bounds together, in each direction
history: show each case over the runs of a project, with its bounds and baselines
    --html FILE    draw the cases on a page, in this file
    --suite NAME several  cases of this suite only (several allowed)
    @case
    --model PATTERN several
        runs of models whose spec is like this, such as 'runs/a/*' (several allowed)
    --last N       the latest N runs only
    --series NAME  what a series (--cep-series NAME) looked at
    @baselines
    --history DIR = .cepbench/history  folder of the history
export: write the cases or samples of a run as a table
    @results
    --rows {cases,samples} = cases  what a row of the CSV file is
    --out PATH       file or folder to write; default: below .cepbench/exports
    --name NAME      of the run; default: the report's file name
    --step STEP = 0  of the training
study: measure how far the numbers of a suite move when something else than the model changes
    @suite
    --vary {seeds,generators,encoders} required
        the seed; the text-to-image model; or the encoder that compares the same chains
    --model [NAME=]SPEC several required
        a model under test, and its name in tables (several allowed)
    --seeds N,N,...     that are compared; default: 0,1,2,3,4
    @describer detector vqa
    --interleaver SPEC  the interleaver of a suite of answers, the same for all
    --writer SPEC       the writer of a suite of answers, the same for all
    --editor SPEC       the editor of a suite of answers, the same for all
    --judge SPEC        the judge of a suite of answers, the same for all
    --generator [NAME=]SPEC several
        the generator, the same for all; or one of those that are compared, and its name in tables
    --encoder [NAME=]SPEC several
        model whose vectors are compared, with NAME= one of the suite's further encoders; or one of
        the encoders that are compared, and its name in tables
    --encoder-name NAME  which of the suite's encoders is exchanged; default: the one without a name
    --role {describer,generator,encoder,detector,vqa,interleaver,writer,editor,judge,unified}
        what the models under test play
    @data samples
    --metrics NAME,...  of the suite's metrics; default: all
    --parts NAME,...    categories, groups or mappings, beside the whole
    @store
    --out DIR = .cepbench/studies
arena: let models battle: their ranks, another judge, verdicts to train a judge with
arena play: let answers of several models battle before a judge, and rank the models
    answers [NAME=]ANSWERS +
        a folder of answers in OpenING's layout, or the report of a run of the suite
    --suite SUITE = pytest_cepbench.suites.opening  whose questions, judge and order they are
    @judge
    --rounds K = 2       of each question
    --order {both,balanced}
        show each pair of answers in both orders, or once; default: the suite's
    --reference NAME     let the reference answers battle too, as a model of this name
    --samples N          the first N battles of all
    --seed SEED = 0      of draw and judge
    --plan               say what it would take, and ask nothing
    @data
    --out DIR = .cepbench/play
    @store
arena rejudge: let a suite's accepted answers be judged by another judge from now on
    @suite judge dry-run baselines store
arena leaderboard: rank the models of each file of verdicts, by win rates and by a model of pairs
    verdicts VERDICTS +  verdicts of one judge each: files, or ratings folders of pairs
    --out DIR = .cepbench/arena
arena training: write battles with the verdicts of people or of the truth, to train a judge with
    sources SOURCE +
        a suite of battles with stored verdicts, such as suites/judge; a study of pairs,
        ratings/NAME; or shapes-arena, battles of the embedded world, which the truth decides
    --format {chat,battles} = chat
        chats for trl, each battle in both orders; or a table that suites/judge reads
    --out DIR required  a new folder for the files
    --unseen NAME several
        a model, or a category, whose battles go into a split of their own (several allowed)
    --prompt {criteria,letters,opening-gpt,opening-intjudge} = criteria
        what the judge is asked, as in its spec
    @store
agree: say how far judges, people and the metrics of models agree with one another
agree models: say what people think of each model, and how the metrics of runs agree with them
    @ratings
    --report [NAME=]REPORT several
        JSON report (--cep-report) of a run of a rated model (several allowed)
    --out DIR = .cepbench/agreement
agree judges: measure a judge against people, as a card of its errors, or beside another judge
    verdicts VERDICTS *
        verdicts of the judge, with --people; or of two judges, the first of which is right
    --people FILE|RATINGS
        verdicts of people on the same battles, in either order of the answers, or a folder of
        their ratings
    --seen MODEL several  a model that was known while the judge was made (several allowed)
    --unseen MODEL several
        a model that the second of two judges did not know while it was made (several allowed)
    --out DIR = .cepbench/agreement
    --judge SPEC  the judge, in the place of a file of its verdicts
    --on FILE|RATINGS|shapes-arena
        verdicts of people, or a folder of ratings, whose battles it judges; or the battles of the
        embedded world, which the truth decides
    --order {both,balanced}  show each pair of answers in both orders, or once; default: both
    --samples N   ask about so many battles, chosen by --seed; fewer are among more
    --seed SEED   of the judge and of the choice; default: 0
    --answers [MODEL=]FOLDER +  the answers of a model in OpenING's layout (several allowed)
    --data NAME=PATH several    where the questions lie: opening=FOLDER
    --partial     leave out battles whose question or answers are not all there
    --dry-run     keep no card beside the baselines
    @baselines store
agree people: say how far annotators agree with one another, with themselves and with known answers
    @ratings
    --out DIR = .cepbench/agreement
rate: ask people on pages of this machine
rate ask: serve blind ratings, descriptions and checks; a study that is new is written first
    target SUITE|FILE|FOLDER
        a suite, a file of items (.jsonl), or a ratings folder that is there already
    --kind {pair,grades,caption,describe,verify}
        what people do: say which of two answers or captions is better, grade and rank outputs,
        describe images, check names
    --out DIR      the ratings folder to write
    --report [NAME=]REPORT several
        the JSON report of a run whose outputs are rated (several allowed)
    --samples N    ask about so many items, chosen by --seed; default: all
    --seed SEED    of the choice, and of all orders; default: 0
    --annotators N|NAME,...
        how many people, or their names; default: 3, who are called a1, a2 and a3
    --overlap N    how many people judge each item; default: 2
    @port host name only-write data
    --store DIR|URL  store of the runs; default: .cepbench/store
    @baselines
dataset: make a data set of your own images: labelled by models, checked by people
dataset patterns: find the patterns of your images, label them by a model, and choose images of each
    images IMAGES  folder of images, also below it
    --out FOLDER required  folder of the data set
    --describer SPEC required  the model that names patterns
    --writer SPEC  the model that summarizes names; not with a file
    --patterns N|FILE = 13  how many patterns a summary has at most, or a file of patterns
    --per-pattern N = 100  images of each pattern that are wanted
    --until {count,summary,sample}  the last stage; default: sample
    @store
dataset verify: let people check labels, on pages of this machine
    @folder
    --annotators N|NAME,...
        who checks labels, or how many people; not needed where the study is there already
    --overlap N  people who see each item; default: all of them
    @port host name only-write
dataset freeze: settle the labels by vote, and write the set as suites load it, with its card
    @folder
    --name NAME   of the data set; default: that of the folder
    --to DIR      folder to write; default: FOLDER/frozen
    --unverified  take the model's labels where nobody looked at an image
store: look at a store of results, make it smaller, move accepted answers
store stats: say what a store holds
    --store STORE = .cepbench/store
store verify: read all of a store, and say what is damaged
    --repair  drop what is damaged; it is computed again
    --store STORE = .cepbench/store
store gc: find what is old, too much, or needed by no baseline, and delete it
    --unused-for 30d     results that no run has used for so many days (d) or weeks (w)
    --max-size 20G       the least recently used results, until no more than this is left
    --baselines DIR several  keep all that the models of these baselines made (several allowed)
    --without-baselines  delete also what is kept for the project's baselines
    @delete
    --store STORE = .cepbench/store
store export: write a suite's accepted answers into one file beside its baselines
    --answers SUITE required  folder with a suite.toml, or such a file
    --out FILE  the file; default: answers.zip beside the suite's baselines
    @baselines store
store import: take over answers that were exported
    bundles BUNDLE +  what export wrote
    @store
"""
