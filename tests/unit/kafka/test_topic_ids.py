from balajoin.kafka.topic_ids import TopicIds


def test_the_same_topics_of_another_cluster_are_no_new_ones() -> None:
    known = TopicIds("one", {"a": "1", "b": "2"})
    assert known.renewed(TopicIds("one", {"a": "1", "b": "3", "c": "4"})) == ["b"]
    assert known.renewed(TopicIds("other", {"a": "5", "b": "6"})) == []
